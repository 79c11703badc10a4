#include "distributed/nccl/nccl_library.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/nccl/nccl_functions.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kNcclSum = 0;  // ncclSum

absl::StatusOr<NcclFunctions> BindFunctions(const CudaLibrary& library) {
  NcclFunctions f;
  WEFT_RETURN_IF_ERROR(library.Bind("ncclGetVersion", &f.version));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclGetUniqueId", &f.new_unique_id));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclCommInitRankConfig", &f.init_rank));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclCommGetAsyncError", &f.async_error));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclCommFinalize", &f.finalize));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclCommDestroy", &f.destroy));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclCommAbort", &f.abort));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclAllReduce", &f.all_reduce));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclAllGather", &f.all_gather));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclReduceScatter", &f.reduce_scatter));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclBroadcast", &f.broadcast));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclReduce", &f.reduce));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclSend", &f.send));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclRecv", &f.receive));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclGroupStart", &f.group_start));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclGroupEnd", &f.group_end));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclGetErrorString", &f.error_text));
  WEFT_RETURN_IF_ERROR(library.Bind("ncclGetLastError", &f.last_error));
  return f;
}

class BoundNccl final : public Nccl {
 public:
  BoundNccl(const NcclFunctions& functions, int version) : f_(functions), version_(version) {}

  int version() const override { return version_; }
  NcclCode NewUniqueId(NcclUniqueId* id) override { return Code(f_.new_unique_id(id)); }
  NcclCode InitRank(const NcclUniqueId& id, int ranks, int rank, int max_ctas,
                    NcclCommunicator* communicator) override {
    NcclConfiguration configuration;
    if (max_ctas > 0) configuration.max_ctas = max_ctas;
    return Code(f_.init_rank(communicator, ranks, id, rank, &configuration));
  }
  NcclCode AsyncError(NcclCommunicator communicator, NcclCode* error) override {
    int code = 0;
    const NcclCode asked = Code(f_.async_error(communicator, &code));
    *error = Code(code);
    return asked;
  }
  NcclCode Finalize(NcclCommunicator c) override { return Code(f_.finalize(c)); }
  NcclCode Destroy(NcclCommunicator c) override { return Code(f_.destroy(c)); }
  NcclCode Abort(NcclCommunicator c) override { return Code(f_.abort(c)); }

  NcclCode AllReduce(const void* from, void* to, size_t count, NcclType type, NcclCommunicator c,
                     void* stream) override {
    return Code(f_.all_reduce(from, to, count, Number(type), kNcclSum, c, stream));
  }
  NcclCode AllGather(const void* from, void* to, size_t count, NcclType type, NcclCommunicator c,
                     void* stream) override {
    return Code(f_.all_gather(from, to, count, Number(type), c, stream));
  }
  NcclCode ReduceScatter(const void* from, void* to, size_t count, NcclType type,
                         NcclCommunicator c, void* stream) override {
    return Code(f_.reduce_scatter(from, to, count, Number(type), kNcclSum, c, stream));
  }
  NcclCode Broadcast(const void* from, void* to, size_t count, NcclType type, int root,
                     NcclCommunicator c, void* stream) override {
    return Code(f_.broadcast(from, to, count, Number(type), root, c, stream));
  }
  NcclCode Reduce(const void* from, void* to, size_t count, NcclType type, int root,
                  NcclCommunicator c, void* stream) override {
    return Code(f_.reduce(from, to, count, Number(type), kNcclSum, root, c, stream));
  }
  NcclCode Send(const void* from, size_t count, NcclType type, int peer, NcclCommunicator c,
                void* stream) override {
    return Code(f_.send(from, count, Number(type), peer, c, stream));
  }
  NcclCode Receive(void* to, size_t count, NcclType type, int peer, NcclCommunicator c,
                   void* stream) override {
    return Code(f_.receive(to, count, Number(type), peer, c, stream));
  }
  NcclCode GroupStart() override { return Code(f_.group_start()); }
  NcclCode GroupEnd() override { return Code(f_.group_end()); }

  std::string ErrorText(NcclCode code) override {
    const char* const text = f_.error_text(static_cast<int>(code));
    return text == nullptr ? absl::StrCat("code ", static_cast<int>(code)) : text;
  }
  std::string LastError(NcclCommunicator communicator) override {
    const char* const text = f_.last_error(communicator);
    return text == nullptr ? "" : text;
  }

 private:
  static NcclCode Code(int code) { return static_cast<NcclCode>(code); }
  static int Number(NcclType type) { return static_cast<int>(type); }

  const NcclFunctions f_;
  const int version_;
};

}  // namespace

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::unique_ptr<Nccl>> BindNccl(const CudaLibrary& library) {
  WEFT_ASSIGN_OR_RETURN(const NcclFunctions functions, BindFunctions(library));
  int version = 0;
  if (const int code = functions.version(&version); code != 0) {
    return library.Refused("ncclGetVersion", code);
  }
  return std::make_unique<BoundNccl>(functions, version);
}

absl::StatusOr<Nccl*> SystemNccl() {
  static Mutex* const mutex = new Mutex;
  static std::unique_ptr<Nccl>* const nccl = new std::unique_ptr<Nccl>;
  MutexLock lock(*mutex);
  if (*nccl == nullptr) {
    WEFT_ASSIGN_OR_RETURN(const CudaLibrary* const library,
                          FindCudaLibrary(CudaLibraryKind::kNccl));
    WEFT_ASSIGN_OR_RETURN(*nccl, BindNccl(*library));
  }
  return nccl->get();
}

}  // namespace weft
