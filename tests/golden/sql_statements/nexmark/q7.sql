-- The highest bid of each ten seconds.
CREATE TABLE q7_result (auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` TIMESTAMP(3), extra VARCHAR)
WITH ('connector' = 'blackhole');

INSERT INTO q7_result
SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
    SELECT MAX(price) AS maxprice, window_end AS `dateTime`
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) AS most
ON b.price = most.maxprice
WHERE b.`dateTime` BETWEEN most.`dateTime` - INTERVAL '10' SECOND AND most.`dateTime`;
