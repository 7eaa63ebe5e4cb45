"""What every command line shares: exit statuses and messages, types of keys, devices, processes."""
