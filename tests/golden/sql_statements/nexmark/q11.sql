-- How many bids each person makes in one go.
CREATE TABLE q11_result (bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3))
WITH ('connector' = 'blackhole');

INSERT INTO q11_result
SELECT
    b.bidder, COUNT(*) AS bid_count,
    SESSION_START(b.`dateTime`, INTERVAL '10' SECOND) AS starttime,
    SESSION_END(b.`dateTime`, INTERVAL '10' SECOND) AS endtime
FROM bid AS b
GROUP BY b.bidder, SESSION(b.`dateTime`, INTERVAL '10' SECOND);
