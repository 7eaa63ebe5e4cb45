"""Texts that an exported folder must treat as the encoder does."""

TORTURE = [
    "The ferry leaves the harbour.",
    "  The ferry leaves the harbour. \n",
    "",
    "   ",
    "word " * 10_000,
    "swallows 🐦🐦 and a family 👨‍👩‍👧‍👦",
    "السفينة تغادر الميناء قبل الفجر",
    "literal <s> </s> <mask> <pad> [CLS] [SEP] [MASK] [PAD] and <extra_id_0>",
    "tab\tnew\nline \x00 nul \u200b zero width",
]
