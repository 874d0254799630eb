// Misses of Caffeine for a trace, at several capacities.
//
// usage: java -cp caffeine.jar CaffeineMisses.java REQUESTS RUNS CAPACITY...
//
// REQUESTS holds two numbers of four bytes, little-endian, for each request: the key and the bytes
// that its object weighs. One line is printed for each capacity and run: capacity and misses.

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

final class CaffeineMisses {
    public static void main(String[] args) throws Exception {
        try (FileChannel file = FileChannel.open(Path.of(args[0]))) {
            IntBuffer requests = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size())
                    .order(ByteOrder.LITTLE_ENDIAN).asIntBuffer();
            for (int at = 2; at < args.length; at++) {
                for (int run = 0; run < Integer.parseInt(args[1]); run++) {
                    System.out.println(args[at] + " " + misses(requests, Long.parseLong(args[at])));
                }
            }
        }
    }

    static long misses(IntBuffer requests, long capacity) {
        // Maintenance runs on the caller, so that no request overtakes it.
        Cache<Integer, Integer> cache = Caffeine.newBuilder().maximumWeight(capacity)
                .weigher((Integer key, Integer weight) -> weight).executor(Runnable::run).build();
        long misses = 0;
        for (int at = 0; at < requests.limit(); at += 2) {
            int key = requests.get(at);
            if (cache.getIfPresent(key) == null) {
                cache.put(key, requests.get(at + 1));
                misses++;
            }
        }
        return misses;
    }
}
