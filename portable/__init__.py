"""Builds what is installed without Rust: static programs, an OCI image and wheels."""
