"""The data sets that come with the library; others are registered by plugins."""
