-- The average winning price of each category.
CREATE TABLE q4_result (id BIGINT, final BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO q4_result
SELECT q.category, AVG(q.final)
FROM (
    SELECT MAX(b.price) AS final, a.category
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
    GROUP BY a.id, a.category
) AS q
GROUP BY q.category;
