--- cli/moons.lua - what the demo runs as Python: the moon's way to full, computed and drawn.
local moons = {}

--- Draws five phases side by side, 72 columns by 7 lines, and writes them to a file as well.
moons.PYTHON = [[
import math

def phase(age, rows=7, columns=13):
    """A moon of this age (0 new, 0.5 full), lit from the right."""
    picture = []
    for row in range(rows):
        y = (row + 0.5) / rows * 2 - 1
        edge = math.sqrt(1 - y * y)
        line = ""
        for column in range(columns):
            x = (column + 0.5) / columns * 2 - 1
            lit = x > edge * math.cos(2 * math.pi * age)
            line += " " if abs(x) > edge else "@" if lit else "."
        picture.append(line)
    return picture

moons = [phase(age) for age in (0.08, 0.18, 0.25, 0.34, 0.5)]
drawing = "\n".join("   ".join(lines).rstrip() for lines in zip(*moons))
open("moons.txt", "w").write(drawing + "\n")
print("\n".join("  " + line for line in drawing.split("\n")))
]]

return moons
