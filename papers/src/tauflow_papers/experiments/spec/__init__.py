"""What an experiment is: published tables as data, read from TOML and checked."""
