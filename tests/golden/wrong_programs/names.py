"""Imports for the wrong programs: every public name, and an environment. A program is then as short as its mistake."""

from millstream.common import *  # noqa: F403
from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.common.watermark_strategy import FieldTimestamps  # noqa: F401
from millstream.datastream import *  # noqa: F403
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource  # noqa: F401
from millstream.datastream.connectors.file_system import FileSink, FileSource, StreamFormat  # noqa: F401
from millstream.datastream.connectors.number_seq import NumberSequenceSource  # noqa: F401
from millstream.datastream.state import *  # noqa: F403
from millstream.datastream.window import *  # noqa: F403


class Second(TimestampAssigner):
    """The second field of a record is its timestamp."""

    def extract_timestamp(self, value, record_timestamp):
        return value[1]


BY_SECOND = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
