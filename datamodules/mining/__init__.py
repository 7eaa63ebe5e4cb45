"""Hard negative mining and near-duplicate detection."""
