// WarpTraffic: what the accesses of a launch cost a GPU that serves whole warps.
#ifndef WEFT_OPS_TESTING_EMULATOR_WARP_TRAFFIC_H_
#define WEFT_OPS_TESTING_EMULATOR_WARP_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace weft::testing {

// What warps asked of memory. A *request* is one instruction of a warp: the accesses that its
// threads make at one place of the body, in the same turn of its loops.
struct TrafficCount {
  int64_t requests = 0;        // of global memory
  int64_t sectors = 0;         // 32-byte pieces of global memory that requests touch
  int64_t needed_sectors = 0;  // as many as their bytes would fill
  int64_t shared_requests = 0;
  // Turns that shared memory takes: 32 banks of 4 bytes give one word each in a turn. Accesses of 8
  // bytes go by half warps, of 16 bytes by quarter warps. CUDA C++ Programming Guide, "Shared
  // Memory" of compute capability 5.x and later.
  int64_t shared_turns = 0;
  int64_t needed_shared_turns = 0;

  void operator+=(const TrafficCount& other);
  // The part of the moved sectors that was asked for, from 0 to 1; 1 without any.
  double Coalescing() const;
  // Turns for each that was needed, 1 or more; 1 without any.
  double BankConflicts() const;
};

// The requests of one warp, put together from the accesses of its threads in whatever order these
// run. Two accesses belong to one request when they are made at one place of the machine code, for
// the same time by their threads. So a place that some lanes skip in one turn of a loop, and others
// in another, counts fewer requests than a GPU has. Single-threaded.
class WarpTraffic {
 public:
  // An access by a lane. `place`: where in the machine code. Atomics count as one access.
  void Add(int lane, const void* place, uintptr_t address, size_t bytes, bool is_shared);
  // What was added since the last call.
  TrafficCount Take();

 private:
  struct Access {
    uintptr_t address;
    uint8_t lane;
    uint8_t bytes;
  };
  struct Request {
    bool is_shared = false;
    std::vector<Access> accesses;
  };

  static void CountGlobal(const Request& request, TrafficCount& count);
  static void CountShared(const Request& request, TrafficCount& count);

  // By place: how often each lane was there.
  struct Place {
    uint32_t visits[32] = {};
    std::vector<Request> requests;  // by visit
  };
  std::unordered_map<uintptr_t, Place> places_;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_WARP_TRAFFIC_H_
