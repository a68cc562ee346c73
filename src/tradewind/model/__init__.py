"""The nouns: frozen, slotted dataclasses that all other layers speak in. No I/O."""
