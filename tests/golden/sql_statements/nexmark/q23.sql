-- Bids of people who sell, too: three tables by person.
CREATE TABLE q23_result (
    auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, bid_dateTime TIMESTAMP(3),
    name VARCHAR, city VARCHAR, state VARCHAR, itemName VARCHAR, category BIGINT, auction_dateTime TIMESTAMP(3)
) WITH ('connector' = 'blackhole');

INSERT INTO q23_result
SELECT
    b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime`, p.name, p.city, p.state, a.itemName, a.category,
    a.`dateTime`
FROM bid AS b
JOIN person AS p ON p.id = b.bidder
JOIN auction AS a ON a.seller = b.bidder;
