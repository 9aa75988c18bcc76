-- The average winning price of each seller's last ten auctions.
CREATE TABLE q6_result (seller BIGINT, avg_price BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO q6_result
SELECT q.seller, AVG(q.final) OVER (PARTITION BY q.seller ORDER BY q.`dateTime` ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (
    SELECT ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC) AS rownum, a.seller, b.price AS final, b.`dateTime`
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
) AS q
WHERE q.rownum <= 1;
