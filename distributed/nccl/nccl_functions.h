// NCCL's functions and its configuration, as they are called without its header. Private to this
// room; nccl_header_test.cc holds them against nccl.h where it is.
#ifndef WEFT_DISTRIBUTED_NCCL_NCCL_FUNCTIONS_H_
#define WEFT_DISTRIBUTED_NCCL_NCCL_FUNCTIONS_H_

#include <climits>
#include <cstddef>

#include "distributed/nccl/nccl.h"

namespace weft {

// ncclConfig_t of NCCL 2.18, the oldest that is taken; later ones read so many bytes of it and set
// the rest themselves (NCCL's user guide, "Creating a communicator with options").
struct NcclConfiguration {
  size_t size = sizeof(NcclConfiguration);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // NCCL's choice, as below
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* network = nullptr;
  int split_share = INT_MIN;
  int later = INT_MIN;  // 2.25 and later have an attribute here, which would get what padding has
};
static_assert(sizeof(NcclConfiguration) == 48);

// The functions, with the types of nccl.h; an ncclResult_t is an int.
struct NcclFunctions {
  int (*new_unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank)(NcclCommunicator*, int, NcclUniqueId, int, NcclConfiguration*) = nullptr;
  int (*async_error)(NcclCommunicator, int*) = nullptr;
  int (*finalize)(NcclCommunicator) = nullptr;
  int (*destroy)(NcclCommunicator) = nullptr;
  int (*abort)(NcclCommunicator) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, NcclCommunicator, void*) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, NcclCommunicator, void*) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, NcclCommunicator, void*) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int, int, NcclCommunicator, void*) = nullptr;
  int (*reduce)(const void*, void*, size_t, int, int, int, NcclCommunicator, void*) = nullptr;
  int (*send)(const void*, size_t, int, int, NcclCommunicator, void*) = nullptr;
  int (*receive)(void*, size_t, int, int, NcclCommunicator, void*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  const char* (*last_error)(NcclCommunicator) = nullptr;
  int (*version)(int*) = nullptr;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_NCCL_FUNCTIONS_H_
