"""Reports: one self-contained HTML file, for a fit (`write_report`) or from sections of one's own (`write_page`)."""

from marginax._extras import require

require("matplotlib")

from marginax.report.clusters import Clusters, write_clusters
from marginax.report.comparison import write_comparison
from marginax.report.fit import NUM_PARTS, write_report
from marginax.report.page import (
    AbstractBlock,
    Bitmap,
    Card,
    Cards,
    Code,
    Facts,
    Gallery,
    Items,
    Pair,
    Picture,
    Section,
    Table,
    Text,
    page,
    write_page,
)
from marginax.report.reproduction import write_reproductions

__all__ = [
    "NUM_PARTS",
    "AbstractBlock",
    "Bitmap",
    "Card",
    "Cards",
    "Clusters",
    "Code",
    "Facts",
    "Gallery",
    "Items",
    "Pair",
    "Picture",
    "Section",
    "Table",
    "Text",
    "page",
    "write_clusters",
    "write_comparison",
    "write_page",
    "write_report",
    "write_reproductions",
]
