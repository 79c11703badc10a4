#include "tensor/cuda/cuda_stream.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_status.h"
#include "tensor/cuda/cuda_wait.h"
#include "tensor/fault_status.h"

namespace weft {

bool ComesFirst(std::string_view stream_name) {
  return stream_name == "collectives" || stream_name == "nccl" ||
         stream_name.substr(0, 5) == "lane ";
}

absl::Status CudaContext::MakeCurrent() const {
  return Check(runtime->SetDevice(card), "become the current device");
}

absl::Status CudaContext::Check(CudaCode code, const std::string& action) const {
  return CudaStatus(*runtime, code, device, action);
}

absl::StatusOr<std::unique_ptr<CudaEvent>> CudaEvent::Create(const CudaContext& context) {
  WEFT_RETURN_IF_ERROR(context.MakeCurrent());
  CudaEventHandle handle = nullptr;
  WEFT_RETURN_IF_ERROR(
      context.Check(context.runtime->CreateEvent(/*with_time=*/false, &handle), "make an event"));
  return std::unique_ptr<CudaEvent>(new CudaEvent(context, handle));
}

CudaEvent::~CudaEvent() {
  context_.runtime->SetDevice(context_.card);
  context_.runtime->DestroyEvent(handle_);
}

bool CudaEvent::Done() const {
  context_.runtime->SetDevice(context_.card);
  return context_.runtime->QueryEvent(handle_) != CudaCode::kNotReady;
}

CudaRecording::~CudaRecording() {
  context_.runtime->SetDevice(context_.card);
  context_.runtime->DestroyExecutable(executable_);
}

absl::Status CudaRecording::Run(Stream& stream) {
  auto* const own = dynamic_cast<CudaStream*>(&stream);
  if (own == nullptr || own->context().card != context_.card ||
      own->context().runtime != context_.runtime) {
    return absl::InvalidArgumentError(
        absl::StrCat("a recording of ", context_.device, " needs a stream of that device"));
  }
  return own->Launch(executable_);
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(const CudaContext& context,
                                                               const std::string& name,
                                                               const CudaStagingOptions& staging) {
  WEFT_RETURN_IF_ERROR(context.MakeCurrent());
  CudaRuntime& runtime = *context.runtime;
  int priority = 0;
  if (ComesFirst(name)) {
    int lowest = 0;
    WEFT_RETURN_IF_ERROR(context.Check(runtime.PriorityRange(&lowest, &priority),
                                       "learn the priorities of its streams"));
  }
  void* memory = nullptr;
  WEFT_RETURN_IF_ERROR(context.Check(runtime.AllocateHost(sizeof(DeviceFault), &memory),
                                     "get pinned memory of the host"));
  CudaStreamHandle handle = nullptr;
  const CudaCode code = runtime.CreateStream(priority, &handle);
  if (code != CudaCode::kSuccess) {
    runtime.FreeHost(memory);
    return context.Check(code, absl::StrCat("make the stream ", name));
  }
  auto* const fault = new (memory) DeviceFault;
  return std::unique_ptr<CudaStream>(new CudaStream(context, name, handle, fault, staging));
}

CudaStream::CudaStream(const CudaContext& context, const std::string& name, CudaStreamHandle handle,
                       DeviceFault* fault, const CudaStagingOptions& staging)
    : context_(context),
      subject_(absl::StrCat("stream ", name, " of ", context.device)),
      handle_(handle),
      fault_(fault),
      staging_(std::make_unique<CudaStaging>(*context.runtime, subject_, staging)) {}

CudaStream::~CudaStream() {
  CudaRuntime& runtime = *context_.runtime;
  runtime.SetDevice(context_.card);
  if (began_recording_) (void)EndRecording(nullptr);
  const CudaCode code = AwaitCuda([&] { return runtime.QueryStream(handle_); }, *context_.clock,
                                  context_.clock->Now() + context_.patience);
  if (code == CudaCode::kNotReady) {
    Log(LogLevel::kError, subject_, " is ended, but its work does not end; it is left alone");
    (void)staging_.release();  // A thread of CUDA may still use it.
    return;
  }
  staging_.reset();
  runtime.FreeHost(fault_);
  runtime.DestroyStream(handle_);
}

absl::Status CudaStream::Enqueue(Work work) {
  WEFT_RETURN_IF_ERROR(Begin());
  return Keep(work.run(work.argument, *this));
}

absl::Status CudaStream::Record(Event& event) {
  auto* const own = dynamic_cast<CudaEvent*>(&event);
  if (own == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject_, " can only record events of its device"));
  }
  // Also behind an error, so that nobody waits for ever.
  const absl::Status current = context_.MakeCurrent();
  const CudaCode code = context_.runtime->RecordEvent(own->handle(), handle_);
  (void)Keep(current);
  return KeepCode(code, "record an event");
}

absl::Status CudaStream::Wait(Event& event) {
  WEFT_RETURN_IF_ERROR(Begin());
  if (auto* const own = dynamic_cast<CudaEvent*>(&event)) {
    return KeepCode(context_.runtime->WaitForEvent(handle_, own->handle()), "wait for an event");
  }
  if (event.Done()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      subject_, " cannot wait for an event of another kind of device that is not done; ",
      "synchronize the stream that recorded it first"));
}

absl::Status CudaStream::Synchronize(absl::Duration timeout) {
  // Its work is waited for all the same.
  (void)Keep(context_.MakeCurrent());
  if (IsRecorded()) {
    return absl::FailedPreconditionError(
        absl::StrCat(subject_, " records, so that there is nothing to wait for"));
  }
  CudaRuntime& runtime = *context_.runtime;
  const CudaCode code = AwaitCuda([&] { return runtime.QueryStream(handle_); }, *context_.clock,
                                  context_.clock->Now() + timeout);
  if (code == CudaCode::kNotReady) {
    return absl::DeadlineExceededError(
        absl::StrCat(subject_, " has not finished within ", absl::FormatDuration(timeout)));
  }
  WEFT_RETURN_IF_ERROR(KeepCode(code, "finish its work"));
  return Keep(FaultStatus(*fault_));
}

absl::Status CudaStream::BeginRecording() {
  WEFT_RETURN_IF_ERROR(Begin());
  if (began_recording_) {
    return absl::FailedPreconditionError(absl::StrCat(subject_, " records already"));
  }
  WEFT_RETURN_IF_ERROR(KeepCode(context_.runtime->BeginCapture(handle_), "begin a recording"));
  began_recording_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RecordedWork>> CudaStream::EndRecording(
    std::unique_ptr<RecordedWork> former) {
  if (!began_recording_) {
    return absl::FailedPreconditionError(
        absl::StrCat(subject_, " has no recording to end; begin one"));
  }
  began_recording_ = false;
  (void)Keep(context_.MakeCurrent());
  CudaRuntime& runtime = *context_.runtime;
  CudaGraphHandle graph = nullptr;
  const CudaCode code = runtime.EndCapture(handle_, &graph);
  if (code != CudaCode::kSuccess || !status_.ok()) {
    if (graph != nullptr) runtime.DestroyGraph(graph);
    return KeepCode(code, "end its recording");
  }
  auto* const own = dynamic_cast<CudaRecording*>(former.get());
  if (own != nullptr && own->card() == context_.card &&
      runtime.UpdateExecutable(own->executable(), graph) == CudaCode::kSuccess) {
    runtime.DestroyGraph(graph);
    return former;
  }
  CudaExecutableHandle executable = nullptr;
  const CudaCode made = runtime.Instantiate(graph, &executable);
  runtime.DestroyGraph(graph);
  WEFT_RETURN_IF_ERROR(KeepCode(made, "make its recording ready to run"));
  return std::make_unique<CudaRecording>(context_, executable);
}

absl::Status CudaStream::CopyFromHost(const void* host, void* device, size_t bytes) {
  WEFT_RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const bool is_pinned, IsPinned(host, bytes));
  if (!is_pinned) return Keep(staging_->CopyIn(handle_, host, device, bytes));
  return KeepCode(context_.runtime->Copy(device, host, bytes, CudaCopyKind::kHostToDevice, handle_),
                  "copy from the host");
}

absl::Status CudaStream::CopyToHost(const void* device, void* host, size_t bytes) {
  WEFT_RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const bool is_pinned, IsPinned(host, bytes));
  if (!is_pinned) return Keep(staging_->CopyOut(handle_, device, host, bytes));
  return KeepCode(context_.runtime->Copy(host, device, bytes, CudaCopyKind::kDeviceToHost, handle_),
                  "copy to the host");
}

absl::Status CudaStream::CopyOnDevice(const void* from, void* to, size_t bytes) {
  WEFT_RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  return KeepCode(context_.runtime->Copy(to, from, bytes, CudaCopyKind::kDeviceToDevice, handle_),
                  "copy on the device");
}

absl::Status CudaStream::CopyToCard(const void* from, int card, void* to, size_t bytes) {
  WEFT_RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  return KeepCode(context_.runtime->CopyPeer(to, card, from, context_.card, bytes, handle_),
                  "copy to another device");
}

absl::Status CudaStream::Launch(CudaExecutableHandle executable) {
  WEFT_RETURN_IF_ERROR(Begin());
  return KeepCode(context_.runtime->LaunchExecutable(executable, handle_), "run a recording");
}

absl::Status CudaStream::Begin() {
  if (!status_.ok()) return status_;
  return Keep(context_.MakeCurrent());
}

absl::Status CudaStream::Keep(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return status_;
}

absl::Status CudaStream::KeepCode(CudaCode code, const char* action) {
  return Keep(CudaStatus(*context_.runtime, code, subject_, action));
}

absl::StatusOr<bool> CudaStream::IsPinned(const void* host, size_t bytes) {
  CudaMemoryKind first = CudaMemoryKind::kPageable;
  CudaMemoryKind last = CudaMemoryKind::kPageable;
  WEFT_RETURN_IF_ERROR(KeepCode(context_.runtime->KindOf(host, &first), "look at an address"));
  WEFT_RETURN_IF_ERROR(
      KeepCode(context_.runtime->KindOf(static_cast<const char*>(host) + bytes - 1, &last),
               "look at an address"));
  if (first == CudaMemoryKind::kDevice || last == CudaMemoryKind::kDevice) {
    return absl::InvalidArgumentError(
        absl::StrCat("the host side of a copy of ", subject_, " is memory of a device"));
  }
  if (first == CudaMemoryKind::kPinned && last == CudaMemoryKind::kPinned) return true;
  if (IsRecorded()) {
    return absl::FailedPreconditionError(
        absl::StrCat(subject_, " records, and a recorded copy needs pinned memory of the host; ",
                     "take it from Device::AllocateHostMemory"));
  }
  return false;
}

bool CudaStream::IsRecorded() const {
  bool is_capturing = false;
  return context_.runtime->IsCapturing(handle_, &is_capturing) == CudaCode::kSuccess &&
         is_capturing;
}

}  // namespace weft
