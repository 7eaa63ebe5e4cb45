"""Use generators on a server with OpenAI's API."""
