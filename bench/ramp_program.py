"""A typical PyFlink program: a sequence, keyed, counted by a stateful function, a checkpoint every second.

It imports nothing of ours; `millstream run --pyflink` serves its imports. With `--fixed` it enables no checkpoints:
then the settings fix the size of epochs.
"""

import argparse

from pyflink.common import Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    """Counts the records of each key; emits the count now and then."""

    def __init__(self, every):
        self.every = every

    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        if seen % self.every == 0:
            yield f"{ctx.get_current_key()} was seen {seen} times"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--fixed", action="store_true")
    asked = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    if not asked.fixed:
        env.enable_checkpointing(1000)
    numbers = env.from_source(
        NumberSequenceSource(1, asked.records), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    keyed = numbers.key_by(lambda number: number % asked.keys, key_type=Types.LONG())
    keyed.process(Count(asked.records // asked.keys), output_type=Types.STRING()).filter(
        lambda text: text.startswith("7 ")
    ).print()
    env.execute("ramp")


if __name__ == "__main__":
    main()
