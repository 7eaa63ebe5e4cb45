"""Models behind a server that speaks OpenAI's protocol, in the place of weights."""
