-- How many bids each person makes in ten seconds of the clock.
CREATE TABLE q12_result (bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3))
WITH ('connector' = 'blackhole');

CREATE VIEW q12_bid AS SELECT *, PROCTIME() AS p_time FROM bid;

INSERT INTO q12_result
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE q12_bid, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
