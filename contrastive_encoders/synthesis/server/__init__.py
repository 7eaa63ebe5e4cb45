"""Generators behind a server with the OpenAI protocol."""
