"""Training runs, whose steps are, in this order: `composition`, `compose`, `resolve`, `checks`, `prepare`, `fit`, and
`finish`.
"""
