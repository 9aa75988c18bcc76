-- Every bid as it is: what the pipeline itself costs.
CREATE TABLE q0_result (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra VARCHAR)
WITH ('connector' = 'blackhole');

INSERT INTO q0_result
SELECT auction, bidder, price, `dateTime`, extra FROM bid;
