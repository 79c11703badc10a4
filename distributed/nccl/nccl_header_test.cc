// What distributed/nccl/nccl.h and distributed/nccl/nccl_functions.h say of NCCL without its
// header, held against the header.
#include <climits>
#include <cstddef>
#include <type_traits>

#include "distributed/nccl/nccl.h"
#include "distributed/nccl/nccl_functions.h"
#include "gtest/gtest.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#define WEFT_HAS_NCCL_HEADER 1
#endif

namespace weft {
namespace {

#ifdef WEFT_HAS_NCCL_HEADER

// Values that are passed alike: both pointers, both structures or neither, and of one size.
template <typename A, typename B>
constexpr bool ArePassedAlike() {
  if (std::is_pointer_v<A> != std::is_pointer_v<B>) return false;
  if (std::is_class_v<A> != std::is_class_v<B>) return false;
  return sizeof(A) == sizeof(B);
}

template <typename A, typename B, typename... As, typename... Bs>
constexpr bool AreCalledAlike(A (*)(As...), B (*)(Bs...)) {
  if constexpr (sizeof...(As) == sizeof...(Bs)) {
    return ArePassedAlike<A, B>() && (ArePassedAlike<As, Bs>() && ...);
  } else {
    return false;
  }
}

// Null pointers of both types: the library is not linked.
#define WEFT_CALLED_AS(field, function) \
  EXPECT_TRUE(AreCalledAlike(decltype(NcclFunctions::field)(), decltype (&function)())) << #function

TEST(NcclHeaderTest, FunctionsAreCalledAsTheyAreDeclared) {
  WEFT_CALLED_AS(new_unique_id, ncclGetUniqueId);
  WEFT_CALLED_AS(init_rank, ncclCommInitRankConfig);
  WEFT_CALLED_AS(async_error, ncclCommGetAsyncError);
  WEFT_CALLED_AS(finalize, ncclCommFinalize);
  WEFT_CALLED_AS(destroy, ncclCommDestroy);
  WEFT_CALLED_AS(abort, ncclCommAbort);
  WEFT_CALLED_AS(all_reduce, ncclAllReduce);
  WEFT_CALLED_AS(all_gather, ncclAllGather);
  WEFT_CALLED_AS(reduce_scatter, ncclReduceScatter);
  WEFT_CALLED_AS(broadcast, ncclBroadcast);
  WEFT_CALLED_AS(reduce, ncclReduce);
  WEFT_CALLED_AS(send, ncclSend);
  WEFT_CALLED_AS(receive, ncclRecv);
  WEFT_CALLED_AS(group_start, ncclGroupStart);
  WEFT_CALLED_AS(group_end, ncclGroupEnd);
  WEFT_CALLED_AS(error_text, ncclGetErrorString);
  WEFT_CALLED_AS(last_error, ncclGetLastError);
  WEFT_CALLED_AS(version, ncclGetVersion);
  EXPECT_FALSE(AreCalledAlike(decltype(NcclFunctions::send)(), decltype (&ncclReduce)()))
      << "so it can fail";
  EXPECT_FALSE(AreCalledAlike(decltype(NcclFunctions::send)(), decltype (&ncclAllGather)()))
      << "a pointer is no size";
}

#define WEFT_IS_NCCLS_NUMBER(ours, nccls) EXPECT_EQ(static_cast<int>(ours), static_cast<int>(nccls))

TEST(NcclHeaderTest, NumbersAreThoseOfTheHeader) {
  WEFT_IS_NCCLS_NUMBER(NcclCode::kSuccess, ncclSuccess);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kUnhandledCudaError, ncclUnhandledCudaError);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kSystemError, ncclSystemError);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kInternalError, ncclInternalError);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kInvalidArgument, ncclInvalidArgument);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kInvalidUsage, ncclInvalidUsage);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kRemoteError, ncclRemoteError);
  WEFT_IS_NCCLS_NUMBER(NcclCode::kInProgress, ncclInProgress);
  WEFT_IS_NCCLS_NUMBER(NcclType::kInt8, ncclInt8);
  WEFT_IS_NCCLS_NUMBER(NcclType::kUint8, ncclUint8);
  WEFT_IS_NCCLS_NUMBER(NcclType::kInt32, ncclInt32);
  WEFT_IS_NCCLS_NUMBER(NcclType::kUint32, ncclUint32);
  WEFT_IS_NCCLS_NUMBER(NcclType::kInt64, ncclInt64);
  WEFT_IS_NCCLS_NUMBER(NcclType::kUint64, ncclUint64);
  WEFT_IS_NCCLS_NUMBER(NcclType::kFloat16, ncclFloat16);
  WEFT_IS_NCCLS_NUMBER(NcclType::kFloat32, ncclFloat32);
  WEFT_IS_NCCLS_NUMBER(NcclType::kFloat64, ncclFloat64);
  WEFT_IS_NCCLS_NUMBER(NcclType::kBfloat16, ncclBfloat16);
  WEFT_IS_NCCLS_NUMBER(0, ncclSum);
}

#define WEFT_LIES_AT(ours, nccls) \
  EXPECT_EQ(offsetof(NcclConfiguration, ours), offsetof(ncclConfig_t, nccls))

TEST(NcclHeaderTest, TheConfigurationBeginsAsTheHeadersDoes) {
  WEFT_LIES_AT(size, size);
  WEFT_LIES_AT(magic, magic);
  WEFT_LIES_AT(version, version);
  WEFT_LIES_AT(blocking, blocking);
  WEFT_LIES_AT(cga_cluster_size, cgaClusterSize);
  WEFT_LIES_AT(min_ctas, minCTAs);
  WEFT_LIES_AT(max_ctas, maxCTAs);
  WEFT_LIES_AT(network, netName);
  WEFT_LIES_AT(split_share, splitShare);
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfiguration ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.max_ctas, theirs.maxCTAs) << "what is left to NCCL";
  EXPECT_EQ(ours.later, NCCL_CONFIG_UNDEF_INT);
  EXPECT_LE(ours.size, theirs.size);
  EXPECT_LE(ours.version, theirs.version);
  EXPECT_EQ(sizeof(NcclUniqueId), sizeof(ncclUniqueId));
}

#else

TEST(NcclHeaderTest, IsHeldAgainstTheHeader) { GTEST_SKIP() << "there is no nccl.h here"; }

#endif

}  // namespace
}  // namespace weft
