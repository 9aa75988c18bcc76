-- The auctions with most bids in the last ten seconds, every two.
CREATE TABLE q5_result (auction BIGINT, num BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO q5_result
SELECT bids.auction, bids.num
FROM (
    SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
) AS bids
JOIN (
    SELECT MAX(counts.num) AS maxn, counts.starttime, counts.endtime
    FROM (
        SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    ) AS counts
    GROUP BY counts.starttime, counts.endtime
) AS most
ON bids.starttime = most.starttime AND bids.endtime = most.endtime AND bids.num >= most.maxn;
