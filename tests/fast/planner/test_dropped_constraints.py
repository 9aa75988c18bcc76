"""ALTER TABLE … DROP CONSTRAINT drops the named constraint, and no other."""

from __future__ import annotations

import pytest

from millstream.errors import SqlError
from millstream.table import EnvironmentSettings, TableEnvironment


@pytest.mark.parametrize(("clause", "name"), [("", "PK_id"), ("CONSTRAINT mine ", "mine")])
def test_only_the_constraint_of_that_name_is_dropped(clause: str, name: str) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    key = f"{clause}PRIMARY KEY (id) NOT ENFORCED"
    env.execute_sql(f"CREATE TABLE t (id INT NOT NULL, {key}) WITH ('connector' = 'datagen')")
    with pytest.raises(SqlError, match=f"no constraint `other`. There is: {name}"):
        env.execute_sql("ALTER TABLE t DROP CONSTRAINT other")
    env.execute_sql(f"ALTER TABLE t DROP CONSTRAINT {name}")
    with pytest.raises(SqlError, match="does not define any primary key"):
        env.execute_sql("ALTER TABLE t DROP PRIMARY KEY")
