"""Plans: a fixed list of steps, of which the store keeps the rows. After the start only the rows decide."""
