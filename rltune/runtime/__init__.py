"""What a job imports: loading bundles, lookup, launching. Read-only, never profiles."""
