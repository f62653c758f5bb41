// A CUDA device without kernels for a CPU build of torch, so that autograd runs on fake tensors.
//
// Fake tensors have shapes, types and a device, but no values: every operation that would wait for
// the GPU and read a value raises. Autograd needs streams and events of the device, which are empty
// here. Preloaded (LD_PRELOAD), as torch looks up the device while it is imported.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace at {

struct FakeGuard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
    static c10::Stream stream() {
        return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CUDA, 0));
    }
    c10::Device getDevice() const override { return {c10::DeviceType::CUDA, 0}; }
    c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
    c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
    c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
    c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
    void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

// torch creates the hooks by this name.
struct CUDAHooks : CUDAHooksInterface {
    explicit CUDAHooks(CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isAvailable() const override { return true; }
    bool isBuilt() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
