// ShardsDigest: whether two ranks have the same parts of the same variables.
#ifndef WEFT_DISTRIBUTED_SHARDS_DIGEST_H_
#define WEFT_DISTRIBUTED_SHARDS_DIGEST_H_

#include <cstdint>
#include <map>
#include <string>

#include "graph/partition.h"

namespace weft {

// XXH3-64 of names, types, shapes and places in the whole tensors, by name; of no value. Which copy
// is the primary one does not count: it changes with the number of replicas. 0: no variables.
uint64_t ShardsDigest(const std::map<std::string, VariableShard>& shards);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARDS_DIGEST_H_
