"""The nouns: frozen, slotted dataclasses that all other layers share. No I/O."""
