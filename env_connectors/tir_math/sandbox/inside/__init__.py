"""What runs inside the sandbox: standard library only, importable without the rest of the project, relative imports only."""
