"""What a person sees: rich tables and pages. Knows results, not how they were made."""
