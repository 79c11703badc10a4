// The bytes that ranks have sent: payload per channel and collective, headers apart.
#ifndef WEFT_DISTRIBUTED_TRAFFIC_H_
#define WEFT_DISTRIBUTED_TRAFFIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ids.h"

namespace weft {

// One channel or collective, as one rank sends on it.
struct StreamTraffic {
  std::string name;  // the channel's value, the collective's node
  RankId to;         // of a channel; none for a collective
  int64_t messages = 0;
  int64_t payload_bytes = 0;
};

// What a rank sent in all steps of a program. A value or node that the program opens several times
// (once for each size of micro-batch) is here once.
struct ProgramTraffic {
  std::string program;
  int64_t steps = 0;
  std::vector<StreamTraffic> streams;  // by name, then receiver
};

// Of one rank since it joined the job.
struct WorkerTraffic {
  std::vector<ProgramTraffic> programs;  // by name
  // Headers that the transport put before parts of messages, checksums included. What the protocols
  // below add (HTTP/2, TCP) is not counted.
  int64_t header_bytes = 0;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_TRAFFIC_H_
