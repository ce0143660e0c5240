"""Products with fewer multiplications, by minimal filtering of rows or heights in tiles."""
