-- Bids on certain auctions.
CREATE TABLE q2_result (auction BIGINT, price BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO q2_result
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
