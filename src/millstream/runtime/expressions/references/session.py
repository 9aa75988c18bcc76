"""References of the session functions."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any
from zoneinfo import ZoneInfo

from millstream.records.watermarks import MIN_WATERMARK, REAL_WATERMARK_MAX
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference

__all__: list[str] = []


def _now(context: CallContext) -> dt.datetime:
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=context.session.now_us // 1000)
    return moment.astimezone(ZoneInfo(context.session.zone))


@reference("CURRENT_DATE")
def current_date(context: CallContext) -> dt.date:
    return _now(context).date()


@reference("CURRENT_TIME", "LOCALTIME")
def current_time(context: CallContext) -> dt.time:
    return _now(context).time().replace(microsecond=0)


@reference("CURRENT_TIMESTAMP", "NOW", "CURRENT_ROW_TIMESTAMP", "PROCTIME")
def current_timestamp(context: CallContext) -> dt.datetime:
    return _now(context).astimezone(dt.UTC)


@reference("LOCALTIMESTAMP")
def local_timestamp(context: CallContext) -> dt.datetime:
    return _now(context).replace(tzinfo=None)


@reference("CURRENT_WATERMARK")
def current_watermark(context: CallContext, rowtime: Any) -> dt.datetime | None:
    watermark_ms = context.session.watermark_ms
    if watermark_ms is None or not MIN_WATERMARK < watermark_ms <= REAL_WATERMARK_MAX:
        return None
    clock = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=watermark_ms)
    return clock.replace(tzinfo=dt.UTC) if context.type.arrow.tz else clock


@reference("SOURCE_WATERMARK")
def reject_source_watermark(context: CallContext) -> None:
    raise EvaluationError("SOURCE_WATERMARK() has no value: use it only in WATERMARK FOR … AS")


@reference("CURRENT_DATABASE")
def current_database(context: CallContext) -> str:
    return context.session.database


@reference("UUID")
def make_uuid(context: CallContext) -> str:
    return str(uuid.uuid4())
