-- The tables that the statements of `unbound` speak of.
CREATE TABLE bid (
  auction BIGINT NOT NULL,
  bidder BIGINT,
  price DECIMAL(10, 2),
  channel STRING,
  tags ARRAY<STRING>,
  extra ROW<city STRING, place ROW<zip INT>>,
  event_time TIMESTAMP(3),
  doubled AS price * 2,
  arrived AS PROCTIME(),
  WATERMARK FOR event_time AS event_time - INTERVAL '5' SECOND
) WITH ('connector' = 'datagen');
CREATE TABLE auction (
  id BIGINT,
  seller BIGINT,
  channel STRING,
  expires TIMESTAMP(3)
) WITH ('connector' = 'datagen');
CREATE TABLE results (auction BIGINT, amount DECIMAL(10, 2), note STRING) WITH ('connector' = 'print');
CREATE TABLE strict (id BIGINT NOT NULL, name STRING) WITH ('connector' = 'print');
CREATE VIEW cheap AS SELECT auction, price FROM bid WHERE price < 10;
