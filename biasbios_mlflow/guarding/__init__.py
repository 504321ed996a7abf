"""The service that makes the gate binding: it gates what is registered and guards aliases."""
