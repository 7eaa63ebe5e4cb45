"""Generators on a server with the OpenAI protocol."""
