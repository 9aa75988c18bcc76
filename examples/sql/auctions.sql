-- An auction house, from its first second to its first minute. Run it:  millstream sql -f examples/sql/auctions.sql
--
-- The events are Nexmark's: people who open auctions and bid in them, made in columns as fast as they are wanted.

CREATE TABLE events (
    event_type INT,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3)>,
    auction ROW<id BIGINT, category BIGINT, `dateTime` TIMESTAMP(3)>,
    person ROW<id BIGINT, state STRING, `dateTime` TIMESTAMP(3)>,
    happened AS CASE event_type
        WHEN 0 THEN person.`dateTime` WHEN 1 THEN auction.`dateTime` ELSE bid.`dateTime`
    END,
    WATERMARK FOR happened AS happened - INTERVAL '2' SECOND
) WITH ('connector' = 'nexmark', 'events.num' = '600000', 'first-event.rate' = '10000');

CREATE VIEW bids AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, happened FROM events WHERE event_type = 2;

-- Every ten seconds: how many bids, and the dearest, by channel.
SELECT window_start, channel, COUNT(*) AS bids, MAX(price) / 100.00 AS dearest
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(happened), INTERVAL '10' SECOND))
WHERE channel IN ('Apple', 'Google')
GROUP BY window_start, window_end, channel;

-- New people by state, the first half minute growing by ten seconds.
SELECT window_start, window_end, state, COUNT(*) AS people
FROM TABLE(CUMULATE(
    TABLE (SELECT person.state AS state, happened FROM events WHERE event_type = 0),
    DESCRIPTOR(happened), INTERVAL '10' SECOND, INTERVAL '30' SECOND))
WHERE state = 'OR'
GROUP BY window_start, window_end, state;
