-- Bids with what a file says of their auctions.
CREATE TABLE side_input (key BIGINT, `value` VARCHAR)
WITH ('connector' = 'filesystem', 'path' = '${folder}/side_input', 'format' = 'csv');

CREATE TABLE q13_result (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), `value` VARCHAR)
WITH ('connector' = 'blackhole');

INSERT INTO q13_result
SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
FROM (SELECT *, PROCTIME() AS p_time FROM bid) AS b
JOIN side_input FOR SYSTEM_TIME AS OF b.p_time AS s ON MOD(b.auction, 10000) = s.key;
