// CUDA's runtime as it is. The one source of this folder that sees CUDA's headers.
#include <cuda_runtime_api.h>

#include <cstring>

#include "tensor/cuda/cuda_runtime.h"

namespace weft {
namespace {

#define WEFT_IS_CUDAS_NUMBER(ours, cudas) \
  static_assert(static_cast<int>(CudaCode::ours) == static_cast<int>(cudas))
WEFT_IS_CUDAS_NUMBER(kSuccess, cudaSuccess);
WEFT_IS_CUDAS_NUMBER(kInvalidValue, cudaErrorInvalidValue);
WEFT_IS_CUDAS_NUMBER(kMemoryAllocation, cudaErrorMemoryAllocation);
WEFT_IS_CUDAS_NUMBER(kInitializationError, cudaErrorInitializationError);
WEFT_IS_CUDAS_NUMBER(kStubLibrary, cudaErrorStubLibrary);
WEFT_IS_CUDAS_NUMBER(kInsufficientDriver, cudaErrorInsufficientDriver);
WEFT_IS_CUDAS_NUMBER(kDevicesUnavailable, cudaErrorDevicesUnavailable);
WEFT_IS_CUDAS_NUMBER(kNoDevice, cudaErrorNoDevice);
WEFT_IS_CUDAS_NUMBER(kInvalidDevice, cudaErrorInvalidDevice);
WEFT_IS_CUDAS_NUMBER(kNoKernelImage, cudaErrorNoKernelImageForDevice);
WEFT_IS_CUDAS_NUMBER(kEccUncorrectable, cudaErrorECCUncorrectable);
WEFT_IS_CUDAS_NUMBER(kNvlinkUncorrectable, cudaErrorNvlinkUncorrectable);
WEFT_IS_CUDAS_NUMBER(kContained, cudaErrorContained);
WEFT_IS_CUDAS_NUMBER(kInvalidHandle, cudaErrorInvalidResourceHandle);
WEFT_IS_CUDAS_NUMBER(kNotReady, cudaErrorNotReady);
WEFT_IS_CUDAS_NUMBER(kIllegalAddress, cudaErrorIllegalAddress);
WEFT_IS_CUDAS_NUMBER(kLaunchTimeout, cudaErrorLaunchTimeout);
WEFT_IS_CUDAS_NUMBER(kPeerAccessAlreadyEnabled, cudaErrorPeerAccessAlreadyEnabled);
WEFT_IS_CUDAS_NUMBER(kAssert, cudaErrorAssert);
WEFT_IS_CUDAS_NUMBER(kHardwareStackError, cudaErrorHardwareStackError);
WEFT_IS_CUDAS_NUMBER(kIllegalInstruction, cudaErrorIllegalInstruction);
WEFT_IS_CUDAS_NUMBER(kMisalignedAddress, cudaErrorMisalignedAddress);
WEFT_IS_CUDAS_NUMBER(kInvalidAddressSpace, cudaErrorInvalidAddressSpace);
WEFT_IS_CUDAS_NUMBER(kInvalidProgramCounter, cudaErrorInvalidPc);
WEFT_IS_CUDAS_NUMBER(kLaunchFailure, cudaErrorLaunchFailure);
WEFT_IS_CUDAS_NUMBER(kSystemNotReady, cudaErrorSystemNotReady);
WEFT_IS_CUDAS_NUMBER(kSystemDriverMismatch, cudaErrorSystemDriverMismatch);
WEFT_IS_CUDAS_NUMBER(kCompatNotSupported, cudaErrorCompatNotSupportedOnDevice);
WEFT_IS_CUDAS_NUMBER(kCaptureUnsupported, cudaErrorStreamCaptureUnsupported);
WEFT_IS_CUDAS_NUMBER(kCaptureInvalidated, cudaErrorStreamCaptureInvalidated);
WEFT_IS_CUDAS_NUMBER(kCaptureUnjoined, cudaErrorStreamCaptureUnjoined);
WEFT_IS_CUDAS_NUMBER(kCaptureIsolation, cudaErrorStreamCaptureIsolation);
WEFT_IS_CUDAS_NUMBER(kCapturedEvent, cudaErrorCapturedEvent);
WEFT_IS_CUDAS_NUMBER(kGraphUpdateFailure, cudaErrorGraphExecUpdateFailure);
WEFT_IS_CUDAS_NUMBER(kExternalDevice, cudaErrorExternalDevice);
#undef WEFT_IS_CUDAS_NUMBER

// The code, and forgets it: libraries that ask cudaGetLastError would take it for their own.
CudaCode Code(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<CudaCode>(error);
}

cudaStream_t StreamOf(CudaStreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(CudaEventHandle event) { return static_cast<cudaEvent_t>(event); }
cudaMemPool_t PoolOf(CudaPoolHandle pool) { return static_cast<cudaMemPool_t>(pool); }
cudaGraph_t GraphOf(CudaGraphHandle graph) { return static_cast<cudaGraph_t>(graph); }
cudaGraphExec_t ExecutableOf(CudaExecutableHandle executable) {
  return static_cast<cudaGraphExec_t>(executable);
}

// The code of a call that makes a handle, which it puts into `handle`.
template <typename Handle, typename Call>
CudaCode Make(void** handle, Call call) {
  Handle made = nullptr;
  const cudaError_t error = call(&made);
  if (error == cudaSuccess) *handle = made;
  return Code(error);
}

int AttributeOr(int device, cudaDeviceAttr attribute, int otherwise) {
  int value = 0;
  const CudaCode code = Code(cudaDeviceGetAttribute(&value, attribute, device));
  return code == CudaCode::kSuccess ? value : otherwise;
}

class RealCudaRuntime final : public CudaRuntime {
 public:
  CudaCode DriverVersion(int* version) override { return Code(cudaDriverGetVersion(version)); }
  CudaCode RuntimeVersion(int* version) override { return Code(cudaRuntimeGetVersion(version)); }
  CudaCode DeviceCount(int* count) override { return Code(cudaGetDeviceCount(count)); }
  CudaCode Properties(int device, CudaProperties* properties) override;
  CudaCode SetDevice(int device) override { return Code(cudaSetDevice(device)); }
  CudaCode MemoryInfo(size_t* free_bytes, size_t* total_bytes) override {
    return Code(cudaMemGetInfo(free_bytes, total_bytes));
  }
  CudaCode PriorityRange(int* lowest, int* highest) override {
    return Code(cudaDeviceGetStreamPriorityRange(lowest, highest));
  }
  CudaCode CanAccessPeer(int device, int peer, bool* can) override {
    int yes = 0;
    const cudaError_t error = cudaDeviceCanAccessPeer(&yes, device, peer);
    *can = yes != 0;
    return Code(error);
  }
  CudaCode EnablePeerAccess(int peer) override { return Code(cudaDeviceEnablePeerAccess(peer, 0)); }

  CudaCode CreateStream(int priority, CudaStreamHandle* stream) override {
    return Make<cudaStream_t>(stream, [&](cudaStream_t* made) {
      return cudaStreamCreateWithPriority(made, cudaStreamNonBlocking, priority);
    });
  }
  CudaCode DestroyStream(CudaStreamHandle stream) override {
    return Code(cudaStreamDestroy(StreamOf(stream)));
  }
  CudaCode SynchronizeStream(CudaStreamHandle stream) override {
    return Code(cudaStreamSynchronize(StreamOf(stream)));
  }
  CudaCode QueryStream(CudaStreamHandle stream) override {
    return Code(cudaStreamQuery(StreamOf(stream)));
  }
  CudaCode WaitForEvent(CudaStreamHandle stream, CudaEventHandle event) override {
    return Code(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0));
  }
  CudaCode CallHost(CudaStreamHandle stream, void (*function)(void*), void* argument) override {
    return Code(cudaLaunchHostFunc(StreamOf(stream), function, argument));
  }

  CudaCode CreateEvent(bool with_time, CudaEventHandle* event) override {
    return Make<cudaEvent_t>(event, [&](cudaEvent_t* made) {
      return cudaEventCreateWithFlags(made, with_time ? cudaEventDefault : cudaEventDisableTiming);
    });
  }
  CudaCode DestroyEvent(CudaEventHandle event) override {
    return Code(cudaEventDestroy(EventOf(event)));
  }
  CudaCode RecordEvent(CudaEventHandle event, CudaStreamHandle stream) override {
    return Code(cudaEventRecord(EventOf(event), StreamOf(stream)));
  }
  CudaCode QueryEvent(CudaEventHandle event) override {
    return Code(cudaEventQuery(EventOf(event)));
  }
  CudaCode ElapsedTime(CudaEventHandle begin, CudaEventHandle end, float* millis) override {
    return Code(cudaEventElapsedTime(millis, EventOf(begin), EventOf(end)));
  }

  CudaCode CreatePool(int device, uint64_t keep_bytes, size_t max_bytes,
                      CudaPoolHandle* pool) override;
  CudaCode DestroyPool(CudaPoolHandle pool) override {
    return Code(cudaMemPoolDestroy(PoolOf(pool)));
  }
  CudaCode SharePool(CudaPoolHandle pool, int device) override {
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    return Code(cudaMemPoolSetAccess(PoolOf(pool), &access, 1));
  }
  CudaCode AllocateFromPool(CudaPoolHandle pool, CudaStreamHandle stream, size_t bytes,
                            void** data) override {
    return Code(cudaMallocFromPoolAsync(data, bytes, PoolOf(pool), StreamOf(stream)));
  }
  CudaCode FreeToPool(void* data, CudaStreamHandle stream) override {
    return Code(cudaFreeAsync(data, StreamOf(stream)));
  }
  CudaCode Allocate(size_t bytes, void** data) override { return Code(cudaMalloc(data, bytes)); }
  CudaCode Free(void* data) override { return Code(cudaFree(data)); }
  CudaCode AllocateHost(size_t bytes, void** data) override {
    return Code(cudaHostAlloc(data, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
  }
  CudaCode FreeHost(void* data) override { return Code(cudaFreeHost(data)); }
  CudaCode KindOf(const void* data, CudaMemoryKind* kind) override {
    cudaPointerAttributes attributes = {};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, data);
    *kind = attributes.type == cudaMemoryTypeHost           ? CudaMemoryKind::kPinned
            : attributes.type == cudaMemoryTypeUnregistered ? CudaMemoryKind::kPageable
                                                            : CudaMemoryKind::kDevice;
    return Code(error);
  }
  CudaCode Copy(void* to, const void* from, size_t bytes, CudaCopyKind kind,
                CudaStreamHandle stream) override {
    const cudaMemcpyKind way = kind == CudaCopyKind::kHostToDevice   ? cudaMemcpyHostToDevice
                               : kind == CudaCopyKind::kDeviceToHost ? cudaMemcpyDeviceToHost
                                                                     : cudaMemcpyDeviceToDevice;
    return Code(cudaMemcpyAsync(to, from, bytes, way, StreamOf(stream)));
  }
  CudaCode CopyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes,
                    CudaStreamHandle stream) override {
    return Code(cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, StreamOf(stream)));
  }

  CudaCode BeginCapture(CudaStreamHandle stream) override {
    return Code(cudaStreamBeginCapture(StreamOf(stream), cudaStreamCaptureModeThreadLocal));
  }
  CudaCode EndCapture(CudaStreamHandle stream, CudaGraphHandle* graph) override {
    return Make<cudaGraph_t>(
        graph, [&](cudaGraph_t* made) { return cudaStreamEndCapture(StreamOf(stream), made); });
  }
  CudaCode IsCapturing(CudaStreamHandle stream, bool* is_capturing) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(StreamOf(stream), &status);
    *is_capturing = status != cudaStreamCaptureStatusNone;
    return Code(error);
  }
  CudaCode DestroyGraph(CudaGraphHandle graph) override {
    return Code(cudaGraphDestroy(GraphOf(graph)));
  }
  CudaCode Instantiate(CudaGraphHandle graph, CudaExecutableHandle* executable) override {
    return Make<cudaGraphExec_t>(executable, [&](cudaGraphExec_t* made) {
      return cudaGraphInstantiate(made, GraphOf(graph), 0);
    });
  }
  CudaCode UpdateExecutable(CudaExecutableHandle executable, CudaGraphHandle graph) override {
    cudaGraphExecUpdateResultInfo info = {};
    return Code(cudaGraphExecUpdate(ExecutableOf(executable), GraphOf(graph), &info));
  }
  CudaCode LaunchExecutable(CudaExecutableHandle executable, CudaStreamHandle stream) override {
    return Code(cudaGraphLaunch(ExecutableOf(executable), StreamOf(stream)));
  }
  CudaCode LoadCode(const void* image, CudaCodeHandle* code) override {
    return Make<cudaLibrary_t>(code, [&](cudaLibrary_t* made) {
      return cudaLibraryLoadData(made, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    });
  }
  CudaCode UnloadCode(CudaCodeHandle code) override {
    return Code(cudaLibraryUnload(static_cast<cudaLibrary_t>(code)));
  }
  CudaCode FindKernel(CudaCodeHandle code, const std::string& name,
                      CudaKernelHandle* kernel) override {
    return Make<cudaKernel_t>(kernel, [&](cudaKernel_t* found) {
      return cudaLibraryGetKernel(found, static_cast<cudaLibrary_t>(code), name.c_str());
    });
  }
  CudaCode LaunchKernel(CudaKernelHandle kernel, int64_t blocks, int threads, const void* parameter,
                        size_t /*bytes*/, CudaStreamHandle stream) override {
    void* parameters[] = {const_cast<void*>(parameter)};
    return Code(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                 dim3(static_cast<unsigned>(threads)), parameters, 0,
                                 StreamOf(stream)));
  }
  CudaCode DestroyExecutable(CudaExecutableHandle executable) override {
    return Code(cudaGraphExecDestroy(ExecutableOf(executable)));
  }

  std::string ErrorName(CudaCode code) override {
    return cudaGetErrorName(static_cast<cudaError_t>(code));
  }
  std::string ErrorText(CudaCode code) override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }
  CudaCode LastError() override { return static_cast<CudaCode>(cudaGetLastError()); }
};

CudaCode RealCudaRuntime::Properties(int device, CudaProperties* properties) {
  cudaDeviceProp found;
  std::memset(&found, 0, sizeof(found));
  if (const cudaError_t error = cudaGetDeviceProperties(&found, device); error != cudaSuccess) {
    return Code(error);
  }
  properties->name = found.name;
  properties->major = found.major;
  properties->minor = found.minor;
  properties->total_bytes = found.totalGlobalMem;
  properties->l2_bytes = static_cast<size_t>(found.l2CacheSize);
  properties->max_shared_bytes = found.sharedMemPerBlockOptin;
  properties->multiprocessors = found.multiProcessorCount;
  properties->memory_bus_bits = found.memoryBusWidth;
  properties->copy_engines = found.asyncEngineCount;
  properties->has_memory_pools = found.memoryPoolsSupported != 0;
  properties->has_ecc = found.ECCEnabled != 0;
  properties->clock_khz = AttributeOr(device, cudaDevAttrClockRate, 0);
  properties->memory_clock_khz = AttributeOr(device, cudaDevAttrMemoryClockRate, 0);
  properties->compute_mode = AttributeOr(device, cudaDevAttrComputeMode, 0);
  properties->numa_node = AttributeOr(device, cudaDevAttrHostNumaId, -1);
  char bus[32] = "";
  if (Code(cudaDeviceGetPCIBusId(bus, sizeof(bus), device)) == CudaCode::kSuccess) {
    properties->pci_bus = bus;
  }
  return CudaCode::kSuccess;
}

CudaCode RealCudaRuntime::CreatePool(int device, uint64_t keep_bytes, size_t max_bytes,
                                     CudaPoolHandle* pool) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  properties.maxSize = max_bytes;
  cudaMemPool_t made = nullptr;
  if (const cudaError_t error = cudaMemPoolCreate(&made, &properties); error != cudaSuccess) {
    return Code(error);
  }
  const cudaError_t error =
      cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &keep_bytes);
  if (error != cudaSuccess) {
    cudaMemPoolDestroy(made);
    return Code(error);
  }
  *pool = made;
  return CudaCode::kSuccess;
}

}  // namespace

absl::StatusOr<CudaRuntime*> SystemCudaRuntime() {
  static CudaRuntime* const runtime = new RealCudaRuntime;
  return runtime;
}

}  // namespace weft
