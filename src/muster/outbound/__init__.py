"""What Muster says to other services, and what it hears from them."""
