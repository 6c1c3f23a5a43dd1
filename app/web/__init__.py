"""What people and programs see: pages, REST, health."""
