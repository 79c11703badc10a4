// Which ranks of a job may run on the same machine.
#ifndef WEFT_DISTRIBUTED_SHARED_MEMORY_RANKS_HERE_H_
#define WEFT_DISTRIBUTED_SHARED_MEMORY_RANKS_HERE_H_

#include <string>
#include <vector>

#include "graph/ids.h"

namespace weft {

// By rank: whether it may run on the machine of `rank`, by their addresses ("host:port" or
// "unix:/path"): both are local, or name one host. Two ranks say the same of each other. Whether it
// does, a connection shows; one whose machine has another name here goes through sockets. All false
// for a rank that is none.
std::vector<bool> RanksHere(const std::vector<std::string>& addresses, RankId rank);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARED_MEMORY_RANKS_HERE_H_
