// Nccl: the calls of NVIDIA's NCCL that Weft makes, without its header.
#ifndef WEFT_DISTRIBUTED_NCCL_NCCL_H_
#define WEFT_DISTRIBUTED_NCCL_NCCL_H_

#include <array>
#include <cstddef>
#include <string>

namespace weft {

// The numbers of ncclResult_t.
enum class NcclCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// Those of ncclDataType_t.
enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// ncclUniqueId: what the members of a communicator find each other by.
struct NcclUniqueId {
  std::array<char, 128> bytes;
};

// ncclComm_t.
using NcclCommunicator = void*;

// Each call is the one of NCCL that its comment names, with the same meaning of arguments and
// codes; results are valid after kSuccess and kInProgress. Counts are in elements, `stream` is a
// cudaStream_t of the communicator's card, sums are sums (ncclSum). Communicators do not block: a
// call that gives kInProgress goes on by itself, and AsyncError says when it is over, before which
// only Abort may be called. Thread-safe, but for the calls of one communicator: of these only
// AsyncError and Abort may come from other threads.
class Nccl {
 public:
  virtual ~Nccl() = default;

  // ncclGetVersion: 10000 major + 100 minor + patch.
  virtual int version() const = 0;
  virtual NcclCode NewUniqueId(NcclUniqueId* id) = 0;  // ncclGetUniqueId
  // ncclCommInitRankConfig, on the current device, with blocking = 0. `max_ctas`: thread blocks,
  // and so channels, that a call may take (maxCTAs); 0: NCCL's choice.
  virtual NcclCode InitRank(const NcclUniqueId& id, int ranks, int rank, int max_ctas,
                            NcclCommunicator* communicator) = 0;
  // ncclCommGetAsyncError.
  virtual NcclCode AsyncError(NcclCommunicator communicator, NcclCode* error) = 0;
  virtual NcclCode Finalize(NcclCommunicator communicator) = 0;  // ncclCommFinalize
  virtual NcclCode Destroy(NcclCommunicator communicator) = 0;   // ncclCommDestroy
  // ncclCommAbort: frees it; kernels that are under way end.
  virtual NcclCode Abort(NcclCommunicator communicator) = 0;

  virtual NcclCode AllReduce(const void* from, void* to, size_t count, NcclType type,
                             NcclCommunicator communicator, void* stream) = 0;
  // `count` per member. In place where `to` + rank x count is `from`.
  virtual NcclCode AllGather(const void* from, void* to, size_t count, NcclType type,
                             NcclCommunicator communicator, void* stream) = 0;
  // `count` per member. In place where `from` + rank x count is `to`.
  virtual NcclCode ReduceScatter(const void* from, void* to, size_t count, NcclType type,
                                 NcclCommunicator communicator, void* stream) = 0;
  virtual NcclCode Broadcast(const void* from, void* to, size_t count, NcclType type, int root,
                             NcclCommunicator communicator, void* stream) = 0;
  virtual NcclCode Reduce(const void* from, void* to, size_t count, NcclType type, int root,
                          NcclCommunicator communicator, void* stream) = 0;
  virtual NcclCode Send(const void* from, size_t count, NcclType type, int peer,
                        NcclCommunicator communicator, void* stream) = 0;
  virtual NcclCode Receive(void* to, size_t count, NcclType type, int peer,
                           NcclCommunicator communicator, void* stream) = 0;
  // ncclGroupStart, ncclGroupEnd: what the thread calls between them starts together.
  virtual NcclCode GroupStart() = 0;
  virtual NcclCode GroupEnd() = 0;

  // ncclGetErrorString.
  virtual std::string ErrorText(NcclCode code) = 0;
  // ncclGetLastError: the details, as far as it has some.
  virtual std::string LastError(NcclCommunicator communicator) = 0;
};

// "2.28.9".
std::string NcclVersionText(int version);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_NCCL_H_
