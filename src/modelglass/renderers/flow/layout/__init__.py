"""Where boxes and lines go in a picture: layers from above to below, boxes in boxes. Pure geometry."""

from modelglass.renderers.flow.layout.nesting import Picture, laid_out
from modelglass.renderers.flow.layout.parts import Place, Point, Route

__all__ = ["Picture", "Place", "Point", "Route", "laid_out"]
