// CudaRuntime: the calls of CUDA's runtime that Weft makes, without CUDA's headers.
#ifndef WEFT_TENSOR_CUDA_CUDA_RUNTIME_H_
#define WEFT_TENSOR_CUDA_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// The numbers of cudaError_t. A value without a name here is one of CUDA's others.
enum class CudaCode : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInitializationError = 3,
  kStubLibrary = 34,
  kInsufficientDriver = 35,
  kDevicesUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoKernelImage = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kContained = 226,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kPeerAccessAlreadyEnabled = 704,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidProgramCounter = 718,
  kLaunchFailure = 719,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupported = 804,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCapturedEvent = 907,
  kGraphUpdateFailure = 910,
  kExternalDevice = 911,
};

// What a card is. Sizes in bytes, clocks in kHz.
struct CudaProperties {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0;     // of the compute capability
  int minor = 0;
  size_t total_bytes = 0;
  size_t l2_bytes = 0;
  size_t max_shared_bytes = 0;  // of a block that asks for more than 48 KiB
  int multiprocessors = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  int copy_engines = 0;
  int numa_node = -1;
  // 0: any process may use it, 2: none may, 3: one process.
  int compute_mode = 0;
  bool has_memory_pools = true;
  bool has_ecc = false;
  std::string pci_bus;  // "0000:3b:00.0"
};

enum class CudaCopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice };
enum class CudaMemoryKind { kPageable, kPinned, kDevice };

// CUDA's own: cudaStream_t, cudaEvent_t, cudaMemPool_t, cudaGraph_t, cudaGraphExec_t.
using CudaStreamHandle = void*;
using CudaEventHandle = void*;
using CudaPoolHandle = void*;
using CudaGraphHandle = void*;
using CudaExecutableHandle = void*;
// cudaLibrary_t and cudaKernel_t.
using CudaCodeHandle = void*;
using CudaKernelHandle = void*;

// Each call is the one of CUDA's runtime API that its comment names, with the same meaning of
// arguments and codes; results are valid after kSuccess. "The current device" is that of the
// calling thread, which SetDevice chooses. Thread-safe as CUDA is: a stream that is captured
// belongs to one thread. Lives for ever, or as long as whoever made it says.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;

  // cudaDriverGetVersion, cudaRuntimeGetVersion: 13020 is 13.2. Driver 0: there is no driver.
  virtual CudaCode DriverVersion(int* version) = 0;
  virtual CudaCode RuntimeVersion(int* version) = 0;
  virtual CudaCode DeviceCount(int* count) = 0;
  // cudaGetDeviceProperties, cudaDeviceGetAttribute and cudaDeviceGetPCIBusId.
  virtual CudaCode Properties(int device, CudaProperties* properties) = 0;
  virtual CudaCode SetDevice(int device) = 0;
  // cudaMemGetInfo, of the current device.
  virtual CudaCode MemoryInfo(size_t* free_bytes, size_t* total_bytes) = 0;
  // cudaDeviceGetStreamPriorityRange, of the current device. A smaller number comes first.
  virtual CudaCode PriorityRange(int* lowest, int* highest) = 0;
  // cudaDeviceCanAccessPeer; cudaDeviceEnablePeerAccess, from the current device.
  virtual CudaCode CanAccessPeer(int device, int peer, bool* can) = 0;
  virtual CudaCode EnablePeerAccess(int peer) = 0;

  // cudaStreamCreateWithPriority, on the current device, non-blocking.
  virtual CudaCode CreateStream(int priority, CudaStreamHandle* stream) = 0;
  virtual CudaCode DestroyStream(CudaStreamHandle stream) = 0;
  virtual CudaCode SynchronizeStream(CudaStreamHandle stream) = 0;
  virtual CudaCode QueryStream(CudaStreamHandle stream) = 0;
  virtual CudaCode WaitForEvent(CudaStreamHandle stream, CudaEventHandle event) = 0;
  // cudaLaunchHostFunc. `function` calls nothing of CUDA.
  virtual CudaCode CallHost(CudaStreamHandle stream, void (*function)(void*), void* argument) = 0;

  // cudaEventCreateWithFlags, on the current device.
  virtual CudaCode CreateEvent(bool with_time, CudaEventHandle* event) = 0;
  virtual CudaCode DestroyEvent(CudaEventHandle event) = 0;
  virtual CudaCode RecordEvent(CudaEventHandle event, CudaStreamHandle stream) = 0;
  virtual CudaCode QueryEvent(CudaEventHandle event) = 0;
  // cudaEventElapsedTime, in milliseconds, of events with time.
  virtual CudaCode ElapsedTime(CudaEventHandle begin, CudaEventHandle end, float* millis) = 0;

  // cudaMemPoolCreate: keeps up to `keep_bytes` of what was freed, and holds `max_bytes` at once (0
  // = no limit).
  virtual CudaCode CreatePool(int device, uint64_t keep_bytes, size_t max_bytes,
                              CudaPoolHandle* pool) = 0;
  virtual CudaCode DestroyPool(CudaPoolHandle pool) = 0;
  // cudaMemPoolSetAccess: kernels and copies of `device` may read and write the pool's memory.
  virtual CudaCode SharePool(CudaPoolHandle pool, int device) = 0;
  // cudaMallocFromPoolAsync, cudaFreeAsync.
  virtual CudaCode AllocateFromPool(CudaPoolHandle pool, CudaStreamHandle stream, size_t bytes,
                                    void** data) = 0;
  virtual CudaCode FreeToPool(void* data, CudaStreamHandle stream) = 0;
  // cudaMalloc and cudaFree, for cards without pools.
  virtual CudaCode Allocate(size_t bytes, void** data) = 0;
  virtual CudaCode Free(void* data) = 0;
  // cudaHostAlloc: pinned, at the same address for the host and for all devices.
  virtual CudaCode AllocateHost(size_t bytes, void** data) = 0;
  virtual CudaCode FreeHost(void* data) = 0;
  // cudaPointerGetAttributes. Memory that CUDA does not know is pageable.
  virtual CudaCode KindOf(const void* data, CudaMemoryKind* kind) = 0;
  // cudaMemcpyAsync. The host's side is pinned.
  virtual CudaCode Copy(void* to, const void* from, size_t bytes, CudaCopyKind kind,
                        CudaStreamHandle stream) = 0;
  virtual CudaCode CopyPeer(void* to, int to_device, const void* from, int from_device,
                            size_t bytes, CudaStreamHandle stream) = 0;

  // cudaStreamBeginCapture for the calling thread alone, cudaStreamEndCapture.
  virtual CudaCode BeginCapture(CudaStreamHandle stream) = 0;
  virtual CudaCode EndCapture(CudaStreamHandle stream, CudaGraphHandle* graph) = 0;
  // cudaStreamIsCapturing: also of a stream that waited for an event of one.
  virtual CudaCode IsCapturing(CudaStreamHandle stream, bool* is_capturing) = 0;
  virtual CudaCode DestroyGraph(CudaGraphHandle graph) = 0;
  virtual CudaCode Instantiate(CudaGraphHandle graph, CudaExecutableHandle* executable) = 0;
  // cudaGraphExecUpdate. kGraphUpdateFailure where the two differ in more than values.
  virtual CudaCode UpdateExecutable(CudaExecutableHandle executable, CudaGraphHandle graph) = 0;
  virtual CudaCode LaunchExecutable(CudaExecutableHandle executable, CudaStreamHandle stream) = 0;
  virtual CudaCode DestroyExecutable(CudaExecutableHandle executable) = 0;

  // cudaLibraryLoadData: code that was compiled while the program runs, a cubin. It is loaded on
  // each card when a kernel of it is first launched there.
  virtual CudaCode LoadCode(const void* image, CudaCodeHandle* code) = 0;
  virtual CudaCode UnloadCode(CudaCodeHandle code) = 0;
  // cudaLibraryGetKernel. The kernel ends with the code.
  virtual CudaCode FindKernel(CudaCodeHandle code, const std::string& name,
                              CudaKernelHandle* kernel) = 0;
  // cudaLaunchKernel along x, of a kernel with one parameter, whose bytes are read before it
  // returns.
  virtual CudaCode LaunchKernel(CudaKernelHandle kernel, int64_t blocks, int threads,
                                const void* parameter, size_t bytes, CudaStreamHandle stream) = 0;

  virtual std::string ErrorName(CudaCode code) = 0;
  virtual std::string ErrorText(CudaCode code) = 0;
  // cudaGetLastError, which forgets it.
  virtual CudaCode LastError() = 0;
};

// CUDA's runtime, linked into this program. Lives for ever; needs no driver. Unimplemented in a
// build without CUDA.
absl::StatusOr<CudaRuntime*> SystemCudaRuntime();

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_RUNTIME_H_
