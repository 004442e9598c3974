package field

// Fields that only toys have.
const ToyWheelSpeed ID = 20000

var toyFields = [...]Descriptor{
	{ID: ToyWheelSpeed, Name: "toy_gpu_wheel_speed_rpm", Kind: Double, Level: GPU, Unit: "1/min", Max: 1e5, Help: "Revolutions of the wheels per minute"},
}

// VendorToy is the row of a vendor that makes toys.
var VendorToy = &Vendor{
	Name: "Toy", Fields: [][]Descriptor{toyFields[:]},
	PCI: "0x70e5", Module: "toys", Nodes: []string{"/dev/toy*"},
	Domain: "toy.example", Resources: []string{"gpu"}, UUID: "TOY-",
}
